"""Configuration files in, one frozen `MirrorConfig` out."""
