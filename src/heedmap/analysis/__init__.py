"""Questions about the maps of a model that are asked often, each in a function."""
