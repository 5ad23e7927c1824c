"""What each `mirror` command does: parsed arguments and a configuration in, printed results and an exit code out."""
