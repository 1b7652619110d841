#!/usr/bin/env python3
"""Mutation testing: which small changes of the code does no test notice?

    ci/mutants.py                              src/order, src/machine and src/key: an hour or two
    ci/mutants.py src/order src/key/table.rs   folders or files of src/, in this order: minutes for a small file
    ci/mutants.py --quick src/order            against the unit tests of the folder, the orders and the machine only
    ci/mutants.py --again src/order            only those that survived the last run, for instance against new tests
    ci/mutants.py --only 17                    mutant 17 of the last run, with the output of the tests

A *mutant* is the crate with one small change: another operator, a statement left out, a body that returns at once, a guard that is always
true, an arm that never matches, `min` in place of `max`. Constants, `const fn`, the insides of macros and test code are not changed. If no
test fails with it, it *survives*.

All mutants are compiled into one program, each behind a switch: `a + b` becomes `(if crate::mutant() == 17 { a - b } else { a + b })`, and
the variable MUTANT says which one is on. So one build serves all. Mutants that do not compile are left out: the compiler's errors say which,
and the rest is generated again. Each mutant runs against the unit tests of its folder, then, if it lives, against the programs of tests/
that `PROGRAMS` names for the folder, or, if it names none, against the unit tests of the orders and of the machine; then against
`tests/against_reference.rs` with short words, then against all other unit tests, then against `tests/memory.rs`. A mutant counts as caught
if it takes too much processor time or memory, or eight times as long as the tests take without a mutant, as one that hangs does.

All is done in a copy of the tree, in target/mutants (or MUTANTS_WORK). MUTANTS_JOBS is how many run at once (2); MUTANTS_RUNNER is a
command to run each with. mutants.json there has each mutant with the test that caught it, from time to time while it runs. It needs `pip install tree-sitter
tree-sitter-rust`. reports/mutations.md explains the survivors.
"""
import itertools, json, os, re, resource, signal, subprocess, sys, threading, time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

try:
    import tree_sitter_rust
    from tree_sitter import Language, Parser
except ImportError:
    sys.exit("ci/mutants.py needs: pip install tree-sitter tree-sitter-rust")

ROOT = Path(__file__).resolve().parent.parent
WORK = Path(os.environ.get("MUTANTS_WORK", ROOT / "target/mutants"))
TREE = WORK / "tree"
SWITCH = """
pub(crate) fn mutant() -> u32 {
    static MUTANT: std::sync::LazyLock<u32> = std::sync::LazyLock::new(|| {
        if std::env::var("MUTANT_ENDS").is_ok() {
            std::panic::set_hook(Box::new(|_| std::process::exit(101)));
        }
        std::env::var("MUTANT").ok().map_or(0, |number| number.parse().unwrap())
    });
    *MUTANT
}
"""
# The programs of tests/ that judge a folder, those first that are quick.
PROGRAMS = {
    "rate_limiter": "limits limiter_traces limiters_in_use replay_corpus same_twice",
    "time": "wheel delays_turned replay_corpus same_twice traces no_threads delays_driver",
    "shared": "queue take_where remove groups shards priorities traces client_go wait_idle streams gives_way delays_turned delays_driver stops "
              "reports oldest_queued metric_traces observers no_threads idle workers delays_stress stress",
    "workers": "handlers stops spawn_tasks worker_panics workers observers",
    "sync": "queue wait_idle delays_driver stress delays_stress idle",
}
FEATURES = "metrics,serde,stream,tokio,tracing"
# What is not compiled.
LEFT_OUT = ("/tests", "src/sync/loom.rs", "src/sync/std_lock.rs")
# Each operator, and what it becomes.
OPERATORS = {op: new for op, *new in map(str.split, """
    == !=; != ==; && ||; || &&; < == > <=; > == < >=; <= >; >= <; + - *; - + /; * + /; / % *; % / +; << >>; >> <<; & | ^; | & ^; ^ | &;
    += -= *=; -= += /=; *= += /=; /= %= *=; %= /= +=; <<= >>=; >>= <<=; &= |=; |= &=; ^= |= &=""".split(";"))}
INTEGERS = "u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize".split()
# Kinds of syntax that are copied as they are.
COPIED = """token_tree macro_invocation macro_definition const_item static_item attribute_item type_arguments array_type line_comment
    block_comment string_literal use_declaration enum_item struct_item type_item const_block""".split()


def values(kind):
    """What a body of this return type may return at once."""
    kind = kind.strip()
    if kind == "bool":
        return ["true", "false"]
    if kind in INTEGERS:
        return ["0", "1"]
    if option := re.fullmatch("Option<(.*)>", kind, re.S):
        return ["None"] + [f"Some({value})" for value in values(option[1])]
    if kind.startswith("(") and not re.search("[<(].*,.*[>)]", kind[1:-1]):
        return [f"({', '.join(v)})" for v in itertools.islice(itertools.product(*map(values, kind[1:-1].split(","))), 4)]
    return [] if re.match("&|impl|Box<dyn|!|Self|\\(", kind) else ["Default::default()"]


class File:
    """Copies a file with switches. `mutants` gets its mutants: those whose name `is_wanted`."""

    def __init__(self, path, mutants, is_wanted):
        self.path, self.mutants, self.is_wanted, self.fn, self.names = path, mutants, is_wanted, [""], {}
        self.source = (ROOT / path).read_bytes()

    def generate(self):
        (TREE / self.path).write_text(self.render(Parser(Language(tree_sitter_rust.language())).parse(self.source).root_node))

    def text(self, node):
        return self.source[node.start_byte : node.end_byte].decode()

    def between(self, start, end):
        return self.source[start:end].decode()

    def add(self, node, what):
        """The number of a new mutant; None if it is not wanted."""
        name = f"{self.path} {self.fn[-1]}: " + " ".join(what.split())
        self.names[name] = count = self.names.get(name, 0) + 1
        name += f" ({count})" if count > 1 else ""
        if not self.is_wanted(name):
            return None
        self.mutants.append({"name": name, "file": self.path, "line": node.start_point[0] + 1, "number": len(self.mutants) + 1})
        return len(self.mutants)

    def children(self, node, skip=0):
        """The node, with its children rendered from byte `skip` on."""
        out, at = "", max(node.start_byte, skip)
        for child in node.children:
            if child.start_byte >= at:
                out += self.between(at, child.start_byte) + self.render(child)
                at = child.end_byte
        return out + self.between(at, node.end_byte)

    def switch(self, node, changes):
        """The node, or one of `changes`: pairs of what it is called, and the text."""
        numbered = [(self.add(node, what), text) for what, text in changes]
        out = "".join(f"if crate::mutant() == {n} {{/*M{n}<*/ {text} /*M{n}>*/}} else " for n, text in numbered if n)
        same = self.children(node)
        # A statement that starts with `if` would end there.
        return f"({out}{{ {f'({same})' if re.match('if|match|unsafe|{', same) else same} }})" if out else same

    def render(self, node):
        if node.type in COPIED or node.type in ("mod_item", "function_item", "impl_item") and self.is_test(node):
            return self.text(node)
        special = getattr(self, "on_" + node.type, None)
        return special(node) if special else self.children(node)

    def is_test(self, node):
        if re.search(r"fn visit\b", self.text(node)[:60]):
            return True  # it counts for tests
        while (node := node.prev_named_sibling) and node.type in ("attribute_item", "line_comment", "block_comment"):
            if node.type == "attribute_item" and re.search(r"cfg\(.*test|\btest\b", self.text(node)):
                return True
        return False

    def on_function_item(self, node):
        if re.search(r"\bconst\b", self.between(node.start_byte, node.child_by_field_name("name").start_byte)):
            return self.text(node)
        body, kind, owner = node.child_by_field_name("body"), node.child_by_field_name("return_type"), node.parent
        while owner and owner.type != "impl_item":
            owner = owner.parent
        owner = self.text(owner.child_by_field_name("type")).split("<")[0] + "::" if owner else ""
        self.fn.append(owner + self.text(node.child_by_field_name("name")))
        out = self.between(node.start_byte, body.start_byte) + "{"
        for value in values(self.text(kind)) if kind else [""] * bool(body.named_children):
            if re.sub(r"\s", "", self.text(body)) != "{%s}" % value.replace(" ", "") and (n := self.add(body, f"return {value}")):
                out += f" if crate::mutant() == {n} {{/*M{n}<*/ return {value}; /*M{n}>*/}} "
        out += self.children(body, body.start_byte + 1)
        self.fn.pop()
        return out

    def on_binary_expression(self, node):
        left, op, right = (node.child_by_field_name(field) for field in ("left", "operator", "right"))
        if {node.parent.type, left.type, right.type} & {"let_chain", "let_condition"}:
            return self.children(node)
        brackets = "{} {} {}" if node.type == "compound_assignment_expr" else "({}) {} ({})"
        return self.switch(node, [(f"{self.text(op)} → {new} in `{self.text(node)}`", brackets.format(self.text(left), new, self.text(right)))
                                  for new in OPERATORS.get(self.text(op), [])])

    on_compound_assignment_expr = on_binary_expression

    def on_unary_expression(self, node):
        op = self.text(node.children[0])
        return self.switch(node, [(f"no {op} in `{self.text(node)}`", self.text(node.children[1]))] if op in "!-" else [])

    def on_call_expression(self, node):
        called = node.child_by_field_name("function")
        method = called.child_by_field_name("field") if called.type == "field_expression" else None
        new = {"min": "max", "max": "min"}.get(self.text(method)) if method else None
        return self.switch(node, [(f"{new} in `{self.text(node)}`", self.between(node.start_byte, method.start_byte) + new
                                   + self.between(method.end_byte, node.end_byte))] if new else [])

    def on_expression_statement(self, node):
        is_dropped = node.children[0].type in ("call_expression", "assignment_expression", "compound_assignment_expr")
        n = self.add(node, f"without `{self.text(node)}`") if is_dropped and self.text(node) != "visit();" else None
        return f"if /*M{n}<*/ crate::mutant() != {n} {{ {self.children(node)} }} /*M{n}>*/" if n else self.children(node)

    def on_struct_expression(self, node):
        fields, changes = node.child_by_field_name("body").named_children, []
        if any(field.type == "base_field_initializer" for field in fields):
            for field in fields:
                if field.type in ("field_initializer", "shorthand_field_initializer"):
                    rest = re.sub(r"^[\s,]*", "", self.between(field.end_byte, node.end_byte))
                    changes.append((f"without field `{self.text(field)}`", self.between(node.start_byte, field.start_byte) + rest))
        return self.switch(node, changes)

    def on_match_arm(self, node):
        pattern, arms = node.child_by_field_name("pattern"), [c for c in node.parent.named_children if c.type == "match_arm"]
        guard = pattern.child_by_field_name("condition")
        if guard is not None and "let " in self.text(guard):
            return self.children(node)
        if guard is not None:
            out, what = self.between(node.start_byte, guard.start_byte), self.text(guard)
            inner = self.render(guard)
            for value, switch in (("true", "== {} ||"), ("false", "!= {} &&")):
                if n := self.add(guard, f"guard `{what}` → {value}"):
                    inner = f"/*M{n}<*/ (crate::mutant() {switch.format(n)} ({inner})) /*M{n}>*/"
            return out + inner + " " + self.children(node, pattern.end_byte)
        is_last = node == arms[-1] or self.text(arms[-1].child_by_field_name("pattern")).strip() != "_"
        n = None if is_last else self.add(node, f"without arm `{self.text(pattern)}`")
        out = f" if /*M{n}<*/ crate::mutant() != {n} /*M{n}>*/" if n else ""
        return self.between(node.start_byte, pattern.end_byte) + out + self.children(node, pattern.end_byte)


def cargo(*arguments):
    env = os.environ | {"CARGO_TARGET_DIR": str(WORK / "build"), "CARGO_INCREMENTAL": "0", "CARGO_PROFILE_DEV_OPT_LEVEL": "1",
                        "CARGO_PROFILE_DEV_DEBUG": "none"}
    run = subprocess.run(["cargo", *arguments, "--locked", "--message-format=json"], cwd=TREE, env=env, stdout=subprocess.PIPE,
                         stderr=subprocess.DEVNULL, text=True)
    return [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]


def innermost(span):
    """The mutant that the compiler's complaint is about."""
    opened = []
    for mark in re.finditer(rb"/\*M(\d+)([<>])\*/", (TREE / span["file_name"]).read_bytes()[: span["byte_start"]]):
        opened.append(int(mark[1])) if mark[2] == b"<" else opened.remove(int(mark[1]))
    return opened[-1:]


def between(message, mutants):
    """The mutants that leave out a statement or an arm at or between the places that the compiler shows. A complaint about what such a
    statement moved, borrowed or matched names no mutant."""
    spans = [s for part in [message, *message["children"]] for s in part["spans"]]
    file = next(s["file_name"] for s in message["spans"] if s["is_primary"])
    lines = [s["line_start"] for s in spans if s["file_name"] == file]
    first = min(lines) if message["code"] and message["code"]["code"] != "E0004" else message["spans"][0]["line_start"]
    near = [m for m in mutants if m["file"] == file and first <= m["line"] <= max(lines)]
    likely = [m for m in near if re.match("[^`]*: without (arm|`return|`[^`(]* = )", m["name"])]
    return {m["number"] for m in likely or near if ": without " in m["name"]}


def generate(files, is_wanted):
    """Makes the tree with all mutants of these files that are wanted and compile."""
    TREE.mkdir(parents=True, exist_ok=True)
    subprocess.run(f"rm -rf '{TREE}'/src && git ls-files -z --cached --others --exclude-standard | tar --create --null --files-from - "
                   f"--ignore-failed-read | tar --extract --touch --directory '{TREE}'", shell=True, check=True, cwd=ROOT)
    lib = TREE / "src/lib.rs"
    lib.write_text("#![allow(warnings, arithmetic_overflow, unconditional_panic)]\n" + lib.read_text() + SWITCH)
    for test in TREE.glob("tests/*.rs"):
        if re.search(r"mod wheel\b", test.read_text()):
            test.write_text(test.read_text() + SWITCH)  # it includes the files of the wheel
    broken = set()
    while True:
        mutants, bad, others = [], set(), []
        for file in files:
            File(file, mutants, lambda name: name not in broken and is_wanted(name)).generate()
        for message in cargo("check", "--lib", "--profile=test", "--features", FEATURES):
            if message["reason"] == "compiler-message" and message["message"]["level"] == "error":
                hit = [n for span in message["message"]["spans"] if span["file_name"] in files for n in innermost(span)]
                bad |= set(hit)
                others += [] if hit else [message["message"]]
        bad = bad or set().union(*(between(message, mutants) for message in others))
        print(f"{len(mutants)} mutants; {len(bad)} do not compile", flush=True)
        if not bad:
            return mutants if not others else sys.exit("\n".join(message["rendered"] for message in others))
        broken |= {mutants[n - 1]["name"] for n in bad}


def build(names):
    """The programs of the unit tests, and of these files of tests/."""
    names = ["keyqueue", *names]
    tests = [f"--test={name}" for name in names[1:]]
    built = [m for m in cargo("test", "--no-run", "--lib", *tests, "--features", FEATURES) if m.get("executable")]
    return {name: next(m["executable"] for m in built if m["target"]["name"] == name) for name in names}


def run(number, program, arguments, limit=None, more={}, wall=None, output=subprocess.PIPE):
    """Runs tests with a mutant until one fails, for `limit` seconds of processor time and `wall` seconds at most. The result is None if
    all pass, or else how it ended."""
    env = os.environ | {"MUTANT": str(number), "MACHINE_SECONDS": "0", "MACHINE_WORDS": "2", "REFERENCE_SECONDS": "1", "REFERENCE_WORDS": "2",
                        "KEYQUEUE_STRESS": "1", "RUST_BACKTRACE": "0"} | more

    def before():
        os.nice(5)
        if limit:
            resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
            resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))

    threads = [] if any(a.startswith("--test-threads") for a in arguments) else ["--test-threads=1"]
    test = subprocess.Popen([*os.environ.get("MUTANTS_RUNNER", "").split(), program, *arguments, *threads], cwd=TREE, env=env,
                            preexec_fn=before, stdout=output, text=True, errors="replace", start_new_session=True,
                            stderr=subprocess.DEVNULL if limit else None)
    # One that waits for ever takes no processor time.
    timer = threading.Timer(wall or 20 * limit, os.killpg, (test.pid, signal.SIGKILL)) if limit else None
    timer and timer.start()
    failed, last = None, ""
    for line in test.stdout or []:
        last = line.split(" ... ")[0].removeprefix("test ") if line.startswith("test ") else last
        if line.rstrip().endswith("FAILED"):
            failed = last
            os.killpg(test.pid, signal.SIGKILL)
            break
    timer and timer.cancel()
    return failed or (f"{last.strip()} (ended with {test.returncode})" if test.wait() else None)


def main():
    arguments = sys.argv[1:]
    options = [a for a in arguments if a.startswith("--")]
    chosen = [a for a in arguments if a.startswith("src/")] or ["src/order", "src/machine", "src/key"]
    saved = WORK / "mutants.json"
    last = json.loads(saved.read_text()) if saved.exists() else {}
    if "--only" in options:
        number = int(arguments[arguments.index("--only") + 1])
        print(next(m for m in last["mutants"] if m.get("number") == number))
        sys.exit(run(number, last["programs"]["keyqueue"], [], output=None))
    files = [str(f.relative_to(ROOT)) for c in chosen for f in ([ROOT / c] if c.endswith(".rs") else sorted((ROOT / c).rglob("*.rs")))]
    files = [f for f in dict.fromkeys(files) if not any(part in f for part in LEFT_OUT)]
    again = {m["name"] for m in last["mutants"] if not m["caught"]} if "--again" in options else None
    mutants = generate(files, lambda name: again is None or name in again)
    folders = {file.split("/")[1] for file in files}
    judges = {folder: PROGRAMS.get(folder, "").split() for folder in folders}
    programs = build(sorted({"against_reference", "memory"}.union(*judges.values())))

    # Where no test catches a panic, the first one ends the program: a random life that failed is not shortened.
    ends = {"MUTANT_ENDS": "1"}
    units, core, side_by_side = programs["keyqueue"], ["order::", "machine::"], ["--test-threads=8"]
    stages = {}
    for folder in folders:
        own = folder + "::"
        if judges[folder]:
            # Many of these tests wait, so their units run side by side, after the programs.
            stages[folder] = [(programs[name], [], 30) for name in judges[folder]] + [(units, [own, *side_by_side], 30)]
            others = ["--skip", own, *side_by_side]
        else:
            ending = {} if run(0, units, [own], 60, ends) else ends
            stages[folder] = [(units, [own], 8, ending), (units, core, 16)]
            others = [word for part in [own, *core] for word in ("--skip", part)]
        if "--quick" not in options:
            stages[folder] += [(programs["against_reference"], [], 60), (units, others, 60)]
            stages[folder] += [] if judges[folder] else [(programs["memory"], [], 60)]
    takes = {}
    for stage in {str(stage[:2]): stage for all in stages.values() for stage in all}.values():
        start = time.monotonic()
        if why := run(0, *stage[:2], 60):
            sys.exit(f"{why} of {stage[:2]} fails without a mutant")
        takes[str(stage[:2])] = time.monotonic() - start
        print(f"{takes[str(stage[:2])]:.1f} s: {Path(stage[0]).name} {' '.join(stage[1])}", flush=True)

    def one(number):
        mutant = mutants[number - 1]
        mutant["caught"] = next((why for stage in stages[mutant["file"].split("/")[1]]
                                 if (why := run(number, *stage, wall=5 + 8 * takes[str(stage[:2])]))), None)
        return number

    # Those that were caught before, which do not run again.
    kept = [m | {"number": None} for m in last.get("mutants", []) if again is not None and m["caught"]]
    with ThreadPoolExecutor(int(os.environ.get("MUTANTS_JOBS", 2))) as pool:
        for number in pool.map(one, range(1, len(mutants) + 1)):
            if number % 25 == 0:
                print(f"{number} of {len(mutants)} ran; {sum(not m['caught'] for m in mutants[:number])} survive", flush=True)
                ran = [m for m in mutants if "caught" in m]
                saved.write_text(json.dumps({"programs": programs, "mutants": kept + ran}, ensure_ascii=False, indent=0))
    saved.write_text(json.dumps({"programs": programs, "mutants": kept + mutants}, ensure_ascii=False, indent=0))
    print("| file | viable | survive |\n|---|---|---|")
    for file in files + [""]:
        these = [m for m in kept + mutants if m["file"].startswith(file)]
        print(f"| {file or 'all'} | {len(these)} | {sum(not m['caught'] for m in these)} |")
    for m in mutants:
        if not m["caught"]:
            print(f"{m['number']}: line {m['line']} of {m['name']}")


if __name__ == "__main__":
    main()
