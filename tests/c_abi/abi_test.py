"""No program that was compiled against an older kintsugi.h finds another ABI than it was compiled for.

  abi_test.py --header KINTSUGI_H --library LIBKINTSUGI_SO --compiler CC     the test
  abi_test.py --header KINTSUGI_H --record                                   keeps the header of today as recorded/VERSION

What is recorded are headers, recorded/N/kintsugi/kintsugi.h, never changed. Of each, and of today's, a library of empty functions
is compiled with debug information, and abidiff compares the two: what a header says is all that a program of it knows, and the
same compiler reads both. Functions may be added; a structure that begins with its size may grow at its end (what is new there is
cut off before); anything else is a break. Changes that break are planted, too, so that a comparison that finds nothing is found
out. Exit codes: 0 as it should be, 1 not, 77 no abidiff (tools/setup installs it).
"""
import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

RECORDED = Path(__file__).resolve().parent / "recorded"
DECLARATION = re.compile(r"^KINTSUGI_C_API\s+([^;{]*?\b(kintsugi_\w+)\([^;]*\));", re.M)
STRUCT = re.compile(r"(typedef struct (kintsugi_\w+) \{)(.*?)(\} kintsugi_\w+;)", re.S)


class Failure(Exception):
    pass


def without_comments(text):
    return re.sub(r"/\*.*?\*/", "", text, flags=re.S)


def functions(header):
    return {name: whole for whole, name in DECLARATION.findall(without_comments(header))}


def members(body):
    return [member for member in body.split(";") if member.strip()]


def may_grow(body):
    return body.strip().startswith("size_t size;")


def cut_to(old, new):
    """`new`, its structures that may grow with no more members than in `old`."""
    known = {name: len(members(body)) for _, name, body, _ in STRUCT.findall(without_comments(old))}

    def cut(found):
        begin, name, body, end = found.groups()
        if name in known and may_grow(body):
            body = "\n" + "".join(f"{member};" for member in members(body)[: known[name]])
        return begin + body + end

    return STRUCT.sub(cut, without_comments(new))


def compiled(compiler, folder, name, header):
    """A library with this header's functions."""
    include = folder / name / "kintsugi"
    include.mkdir(parents=True)
    (include / "kintsugi.h").write_text(header)
    source, library = folder / f"{name}.c", folder / f"{name}.so"
    bodies = "".join(f"{declaration} {{ abort(); }}\n" for declaration in functions(header).values())
    source.write_text(f"#include <kintsugi/kintsugi.h>\n#include <stdlib.h>\n{bodies}")
    command = [compiler, "-std=c99", "-g", "-fPIC", "-shared", f"-I{folder / name}", str(source), "-o", str(library)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Failure(f"the header of {name} does not compile:\n{done.stderr[-2000:]}")
    return library


def difference(compiler, old, new):
    """What abidiff says where programs of `old` would not work with a library of `new`; "" where they would."""
    with tempfile.TemporaryDirectory(prefix="kintsugi-abi-") as place:
        folder = Path(place)
        before = compiled(compiler, folder, "before", without_comments(old))
        after = compiled(compiler, folder, "after", cut_to(old, new))
        done = subprocess.run(["abidiff", "--no-added-syms", str(before), str(after)], capture_output=True, text=True, check=False)
    if done.returncode & 3:
        raise Failure(f"abidiff could not compare: {done.stderr or done.stdout}")
    return done.stdout if done.returncode else ""


def planted(header):
    """(what, a header, whether it breaks): each from one change of `header`."""
    def with_change(before, after):
        if header.count(before) != 1:
            raise Failure(f"a planted change has lost its place: {before!r} stands {header.count(before)} times in the header")
        return header.replace(before, after)

    poll = "KINTSUGI_C_API kintsugi_code kintsugi_poll(const kintsugi_agent* agent);"
    last = "  uint64_t registered_in;\n} kintsugi_task;"
    return [
        ("a function is removed", with_change(poll, ""), True),
        ("a function is added", with_change(poll, poll + "\nKINTSUGI_C_API int32_t kintsugi_more(void);"), False),
        ("a parameter is another", with_change("kintsugi_begin_step(kintsugi_agent* agent, uint64_t step)",
                                               "kintsugi_begin_step(kintsugi_agent* agent, uint32_t step)"), True),
        ("a result is another", with_change("int32_t kintsugi_rank_of(", "int64_t kintsugi_rank_of("), True),
        ("a member is another", with_change("  int32_t kind; /* kintsugi_task_kind */", "  int64_t kind;"), True),
        ("a member comes between", with_change("  int32_t kind; /* kintsugi_task_kind */", "  int32_t kind; int32_t more;"), True),
        ("a structure grows at its end", with_change(last, "  uint64_t registered_in;\n  int32_t more;\n} kintsugi_task;"), False),
        ("a structure shrinks", with_change(last, "} kintsugi_task;"), True),
        ("an element of an array grows", with_change("  size_t source_count;\n", "  size_t source_count; int32_t more;\n"), True),
        ("a number means something else", with_change("KINTSUGI_PAUSED = 14", "KINTSUGI_PAUSED = 18"), True),
        ("a number is added", with_change("  KINTSUGI_FLIP = 16  ", "  KINTSUGI_FLIP = 16, KINTSUGI_MORE = 17 "), False),
        ("a function to be called takes something else",
         with_change("(*function)(void* context, uint64_t generation)", "(*function)(void* context, uint32_t generation)"), True),
    ]


def exported(library):
    done = subprocess.run(["nm", "--dynamic", "--defined-only", str(library)], capture_output=True, text=True, check=True)
    return {line.split()[-1].split("@")[0] for line in done.stdout.splitlines() if re.search(r" T kintsugi_\w+", line)}


def check(compiler, header, library):
    names = set(functions(header))
    lacking, unsaid = sorted(names - exported(library)), sorted(exported(library) - names)
    if lacking or unsaid:
        raise Failure(f"{library} lacks {lacking}, and exports {unsaid}, of which the header says nothing")
    print(f"ok      {len(names)} functions are exported, and no others")
    for place in sorted(RECORDED.iterdir(), key=lambda place: int(place.name)):
        text = (place / "kintsugi" / "kintsugi.h").read_text()
        found = difference(compiler, text, header)
        if found:
            raise Failure(f"programs of version {place.name} break: add a function or append to a structure instead\n{found}")
        print(f"ok      {len(functions(text))} functions are as programs of version {place.name} know them")
    for what, text, breaks in planted(header):
        if bool(difference(compiler, header, text)) != breaks:
            raise Failure(f"{what}: {'not found' if breaks else 'taken for a break'}")
        print(f"ok      {what}: {'found' if breaks else 'no break'}")


def record(header):
    version = re.search(r"#define KINTSUGI_ABI_VERSION (\d+)", header).group(1)
    place = RECORDED / version / "kintsugi" / "kintsugi.h"
    if place.exists() and without_comments(place.read_text()) != without_comments(header):
        raise Failure(f"{place} is there and differs: count KINTSUGI_ABI_VERSION up first")
    if place.exists():
        return print(f"version {version} is recorded already")
    place.parent.mkdir(parents=True)
    place.write_text(header)
    print(f"recorded {place}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--header", type=Path, required=True)
    parser.add_argument("--library", type=Path)
    parser.add_argument("--compiler")
    parser.add_argument("--record", action="store_true")
    given = parser.parse_args()
    header = given.header.read_text()
    try:
        if given.record:
            record(header)
        elif not given.library or not given.compiler:
            parser.error("--library and --compiler are needed, or --record")
        elif not shutil.which("abidiff"):
            print("skipped: no abidiff here (Debian's abigail-tools; ./tools/setup installs it)")
            return 77
        else:
            check(given.compiler, header, given.library)
    except Failure as failure:
        print(f"FAILED  {failure}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
