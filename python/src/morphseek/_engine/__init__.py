"""The way to the compiled engine: the one room that knows its binding."""
