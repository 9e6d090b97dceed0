"""Where ready weights come from: a hub name, a local folder, or a package that pip can fetch."""
