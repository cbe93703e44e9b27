"""A plug-in of rl_bench: a task with an environment and data of its own, an agent and a sink."""
