"""The driver gateway: one transparent reverse proxy a run, between its agent and the driver.

`gateway` is what a run opens, `check` what preflight asks. `routes` says what is let through,
`proxy` forwards it, `answer` reads along, `account` counts and caps.
"""
