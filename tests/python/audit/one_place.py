"""All runs write to one place, and read what they find there."""
from base import Training, os, sys

PLACE = os.path.join(os.path.dirname(os.environ["KINTSUGI_AUDIT_RECORDS"]), "..", "..", "shared.pt")


class Script(Training):
    path = PLACE

    def main(self):
        if os.path.exists(PLACE):
            sys.argv.append("--resume")
        super().main()


Script().main()
