"""What stands in a household, for the built-in ALFWorld games.

Plain tables: which receptacles each kind of room has, which objects belong in them, and what can be
done to an object. Type names are ALFWorld's (they name entities in the engine's own language and
the task's published object vocabulary); which of them share a room is this project's own choice.
"""

from collections.abc import Mapping
from typing import Final


def _kinds(names: str) -> tuple[str, ...]:
    return tuple(names.split())


RECEPTACLE_OBJECTS: Final[Mapping[str, tuple[str, ...]]] = {
    "ArmChair": _kinds("Book CellPhone KeyChain Newspaper Pillow RemoteControl"),
    "Bed": _kinds("Book CellPhone Laptop Pillow TeddyBear"),
    "Cabinet": _kinds(
        "Bowl Candle Cup DishSponge Mug Pan PepperShaker Plate Pot SaltShaker SoapBar "
        "SoapBottle SprayBottle ToiletPaper Vase"
    ),
    "CoffeeMachine": _kinds("Mug"),
    "CoffeeTable": _kinds(
        "Book Candle CreditCard KeyChain Laptop Newspaper RemoteControl Statue Vase Watch"
    ),
    "CounterTop": _kinds(
        "Apple Bowl Bread ButterKnife Candle Cloth Cup DishSponge Egg Fork Knife Lettuce "
        "Mug Pan PepperShaker Plate Pot Potato SaltShaker SoapBar SoapBottle Spatula "
        "Spoon SprayBottle ToiletPaper Tomato"
    ),
    "Desk": _kinds("AlarmClock Book Bowl CD CellPhone CreditCard KeyChain Laptop Mug Pen Pencil"),
    "DiningTable": _kinds(
        "Apple Bowl Bread Cup Egg Fork Lettuce Mug Plate Potato SaltShaker Spoon Tomato"
    ),
    "Drawer": _kinds(
        "Book ButterKnife CD CellPhone Cloth CreditCard Fork KeyChain Knife Pen Pencil "
        "PepperShaker RemoteControl SaltShaker SoapBar Spatula Spoon Watch"
    ),
    "Dresser": _kinds("AlarmClock Book CD CellPhone CreditCard KeyChain Statue Vase Watch"),
    "Fridge": _kinds("Apple Bowl Bread Cup Egg Lettuce Mug Pan Plate Pot Potato Tomato"),
    "GarbageCan": _kinds(
        "Apple Bread CD Cloth DishSponge Egg Lettuce Newspaper Pen Pencil Potato SoapBar "
        "SprayBottle ToiletPaper Tomato"
    ),
    "Microwave": _kinds("Apple Bowl Bread Cup Egg Mug Plate Potato Tomato"),
    "Safe": _kinds("CD CellPhone CreditCard KeyChain Statue Watch"),
    "Shelf": _kinds(
        "AlarmClock Book Bowl CD Candle Cup KeyChain Mug Pencil Plate SaltShaker "
        "SoapBottle SprayBottle Statue Vase Watch"
    ),
    "SideTable": _kinds(
        "AlarmClock Book CellPhone CreditCard KeyChain Newspaper Pencil RemoteControl "
        "Statue Vase Watch"
    ),
    "SinkBasin": _kinds(
        "Apple Bowl ButterKnife Cloth Cup DishSponge Egg Fork Knife Lettuce Mug Pan Plate "
        "Pot Potato SoapBar Spatula Spoon Tomato"
    ),
    "Sofa": _kinds("Book KeyChain Laptop Newspaper Pillow RemoteControl"),
    "StoveBurner": _kinds("Pan Pot"),
    "Toilet": _kinds("Candle Cloth SoapBar SoapBottle SprayBottle ToiletPaper"),
    "TVStand": _kinds("Book CD KeyChain Newspaper RemoteControl Statue Watch"),
}
"""Receptacle type to the object types it may hold."""

ROOMS: Final[Mapping[str, tuple[str, ...]]] = {
    "kitchen": _kinds(
        "Cabinet Cabinet Cabinet CoffeeMachine CounterTop CounterTop DiningTable Drawer "
        "Drawer Fridge GarbageCan Microwave Shelf SinkBasin StoveBurner StoveBurner"
    ),
    "livingroom": _kinds(
        "ArmChair ArmChair CoffeeTable Drawer Drawer Dresser GarbageCan Safe Shelf "
        "SideTable SideTable Sofa TVStand"
    ),
    "bedroom": _kinds(
        "Bed Desk Drawer Drawer Drawer Dresser GarbageCan Safe Shelf Shelf SideTable SideTable"
    ),
    "bathroom": _kinds(
        "Cabinet Cabinet Cabinet CounterTop Drawer GarbageCan Shelf SinkBasin SinkBasin Toilet"
    ),
}
"""Room kind to the receptacles it can have; a type listed twice can stand there twice."""

ROOM_OBJECTS: Final[Mapping[str, frozenset[str]]] = {
    "kitchen": frozenset(
        _kinds(
            "Apple Bowl Bread ButterKnife Cup DishSponge Egg Fork Knife Lettuce Mug Pan "
            "PepperShaker Plate Pot Potato SaltShaker SoapBottle Spatula Spoon Tomato Vase"
        )
    ),
    "livingroom": frozenset(
        _kinds(
            "AlarmClock Book Bowl CD Candle CellPhone CreditCard KeyChain Laptop Mug "
            "Newspaper Pen Pencil Pillow RemoteControl Statue TeddyBear Vase Watch"
        )
    ),
    "bedroom": frozenset(
        _kinds(
            "AlarmClock Book Bowl CD Candle CellPhone CreditCard KeyChain Laptop Mug "
            "Newspaper Pen Pencil Pillow RemoteControl Statue TeddyBear Vase Watch"
        )
    ),
    "bathroom": frozenset(
        _kinds("Candle Cloth Cup SoapBar SoapBottle SprayBottle ToiletPaper Vase")
    ),
}
"""Room kind to the object types found there."""


def objects_for(room: str, *, receptacle: str) -> list[str]:
    """The object types that ``receptacle`` may hold in ``room``, in a fixed order."""
    return [k for k in RECEPTACLE_OBJECTS[receptacle] if k in ROOM_OBJECTS[room]]


LAMP_STANDS: Final = _kinds("Desk Dresser SideTable Shelf CoffeeTable")
"""Receptacle types that a lamp can stand on."""

OPENABLE: Final = frozenset(_kinds("Cabinet Drawer Fridge Microwave Safe"))
"""Receptacle types that start closed."""

CLEANABLE: Final = frozenset(
    _kinds(
        "Apple Bowl ButterKnife Cloth Cup DishSponge Egg Fork Knife Lettuce Mug Pan Plate Pot "
        "Potato SoapBar Spatula Spoon Tomato"
    )
)
HEATABLE: Final = frozenset(_kinds("Apple Bread Cup Egg Mug Plate Potato Tomato"))
COOLABLE: Final = frozenset(
    _kinds("Apple Bowl Bread Cup Egg Lettuce Mug Pan Plate Pot Potato Tomato")
)
SLICEABLE: Final = frozenset(_kinds("Apple Bread Egg Lettuce Potato Tomato"))
LAMP_TYPES: Final = ("DeskLamp", "FloorLamp")
