"""Which topics a flow copies, under which names and with which configs; and remote topics made so."""
