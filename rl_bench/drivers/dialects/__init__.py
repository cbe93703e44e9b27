"""The provider APIs that the scripted driver speaks, one module each."""
