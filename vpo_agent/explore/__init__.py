"""The page of ``vpo explore``: its data, and the scripts and styles that show them."""
