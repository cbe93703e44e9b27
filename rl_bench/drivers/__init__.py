"""The scripted driver: a stand-in for a language model that agents' CLIs can work with.

session     what is said and done, step by step, and which faults come between
dialogue    a request and an answer, whatever API they came in
player      the answer to a request: a pure function of the session and the request
shell_tool  which of an agent's tools runs a command, and with which arguments
dialects/   the APIs: Anthropic Messages, OpenAI Responses and Chat Completions, Gemini
scripted    the server
"""
