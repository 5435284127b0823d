"""``python -m cfg_fsm``: the same as the command ``cfg-fsm``."""

from cfg_fsm.cli import main

if __name__ == "__main__":
    main()
