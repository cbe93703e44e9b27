"""The replay agent: does again what a recorded run did; depends on nothing of the runner."""
