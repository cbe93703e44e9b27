"""The domain of Agent2 RL-Bench in plain Python: plan, run, grading, records. No Ray here."""

__version__ = "0.1.0"
