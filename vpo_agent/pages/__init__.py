"""How pages, tables and figures look, and how a folder of them is written whole."""
