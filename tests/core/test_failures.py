"""Which lines of compilers, linters and test runners name a failure."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralph.core.failures import FailureSign, failure_sign

REPORTS = {
    "pytest": """\
FAILED tests/test_x.py::test_b - AssertionError: 1 != 2
tests/test_x.py::test_417 FAILED                                         [ 52%]
[gw0] [ 50%] FAILED tests/test_x.py::test_b
ERROR tests/test_x.py::test_b - fixture 'x' not found
ERROR collecting tests/test_x.py
E       assert 1 == 2
test_greet.py:5: AssertionError
tests/errors/test_x.py ..F..                                     [ 50%]
1 failed, 3 passed in 0.02s
1 passed, 2 errors in 0.02s
""",
    "unittest": """\
FAIL: test_x (mod.Case.test_x)
ERROR: setUpClass (mod.Case)
test_x (mod.Case.test_x) ... FAIL
test_x (mod.Case.test_x) ... ERROR
FAILED (failures=1, errors=2)
AssertionError
AssertionError: 1 != 2
""",
    "jest": """\
FAIL src/x.test.js
  ● sums › adds
    ✕ adds (3 ms)
Tests:       1 failed, 3 passed, 4 total
""",
    "vitest": """\
 FAIL  src/x.test.ts > sums > adds
   × sums > adds 3ms
AssertionError: expected 1 to be 2
""",
    "mocha": """\
  1 failing
      AssertionError [ERR_ASSERTION]: Expected values to be strictly equal:
  Uncaught TypeError: x is not a function
""",
    "node": """\
✖ adds (1.2ms)
# fail 1
ℹ fail 1
""",
    "TAP": """\
not ok 2 - adds
    not ok 2 - adds
""",
    "go": """\
--- FAIL: TestParse (0.00s)
    --- FAIL: TestParse/empty (0.00s)
FAIL
FAIL\texample.com/x\t0.012s
panic: runtime error: index out of range [3] with length 3
./x.go:5:2: undefined: y
""",
    "cargo": """\
test parse::empty ... FAILED
thread 'parse::empty' panicked at src/lib.rs:3:5:
error[E0308]: mismatched types
error: could not compile `x` (lib) due to 1 previous error
test result: FAILED. 3 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out
""",
    "tsc": """\
src/x.ts(3,1): error TS2304: Cannot find name 'y'.
src/x.ts:3:1 - error TS2304: Cannot find name 'y'.
Found 3 errors in 2 files.
""",
    "eslint": """\
  1:10  error  'x' is defined but never used  no-unused-vars
✖ 3 problems (3 errors, 0 warnings)
""",
    "mypy, ruff": """\
src/x.py:3: error: Incompatible types in assignment  [assignment]
src/x.py:1:8: F401 [*] `os` imported but unused
F401 [*] `os` imported but unused
""",
    "gcc, make": """\
x.c:3:5: error: expected ';' before 'return'
x.c:1:10: fatal error: y.h: No such file or directory
x.c:3:5: error: unused variable 'y' [-Werror=unused-variable]
x.c:(.text+0x5): undefined reference to `y'
collect2: error: ld returned 1 exit status
make: *** [Makefile:3: test] Error 1
gmake[2]: *** [Makefile:3: test] Error 1
""",
    "ctest, googletest": """\
 3/10 Test  #3: parse ............................***Failed    0.01 sec
[  FAILED  ] Parse.Empty (0 ms)
parse_test.cc:5: Failure
""",
    "Maven": """\
[ERROR]   FooTest.bar:12 expected: <1> but was: <2>
[ERROR] Tests run: 3, Failures: 1, Errors: 0, Skipped: 0, Time elapsed: 0.1 s <<< FAILURE! - in FooTest
[INFO] BUILD FAILURE
Foo.java:3: error: ';' expected
Caused by: java.lang.IllegalStateException: closed
""",
    "Gradle": """\
FooTest > bar() FAILED
    org.opentest4j.AssertionFailedError at FooTest.java:12
> Task :test FAILED
FAILURE: Build failed with an exception.
BUILD FAILED in 3s
e: file:///src/X.kt:3:5 Unresolved reference: y
""",
    "PHPUnit": """\
There was 1 failure:
Failed asserting that 1 matches expected 2.
FAILURES!
Tests: 3, Assertions: 3, Failures: 1.
""",
    "RSpec, minitest, RuboCop": """\
     Failure/Error: expect(1).to eq 2
rspec ./spec/x_spec.rb:3 # Foo bars
5 examples, 1 failure
3 runs, 3 assertions, 1 failures, 0 errors, 0 skips
x.rb:3:5: C: Style/StringLiterals: Prefer single-quoted strings
""",
    "dotnet": """\
Program.cs(3,5): error CS1002: ; expected
  Failed Foo.Bar [3 ms]
Failed!  - Failed:     1, Passed:     3, Skipped:     0, Total:     4
Build FAILED.
""",
    "deno, bun, bats, XCTest": """\
parse ... FAILED (1ms)
(fail) parse > empty
 ✗ parses an empty line
Test Case 'ErrorTests.testError' failed (0.001 seconds).
""",
}

WORDS = """\
  1) Parser reads an empty line:
npm error Lifecycle script `test` failed with error:
    parse_test.go:12: got 1, want 2
    Expected: 1
    Received: 2
  left: 1
       expected: 2
            got: 1
sh: 1: pytes: not found
fatal: not a git repository (or any of the parent directories): .git
Segmentation fault (core dumped)
Cannot find module './x'
thread stopped, IOError
"""

HARMLESS = {
    "applications": """\
request 17 handled without errors
done without any failures
""",
    "pytest": """\
tests/test_x.py::test_error PASSED [ 50%]
tests/test_x.py::test_an_error
[gw0] [ 50%] PASSED tests/test_x.py::test_error
PASSED test_error
tests/errors/test_x.py .....                                     [ 50%]
tests/errors/test_x.py .....
collected 800 items / 0 errors
=================================== FAILURES ===================================
4 passed, 1 xfailed in 0.02s
""",
    "unittest": """\
test_error (mod.Case.test_error) ... ok
test_error (mod.Case.test_error) ... skipped 'fails on Windows'
test_error (mod.Case.test_error) ... expected failure
""",
    "jest, mocha, node": """\
✓ handles errors
  ✔ handles errors (0.4ms)
    ✓ shows FAILED in red (3 ms)
PASS src/errors.test.js
Tests:       4 passed, 4 total
# fail 0
ℹ fail 0
""",
    "TAP": """\
ok 2 - cannot parse
# Subtest: handles error
not ok 3 - error # TODO
not ok 3 - error # SKIP needs network
""",
    "go": """\
=== RUN   TestParseError
--- PASS: TestParseError (0.00s)
    --- PASS: TestParse/undefined (0.00s)
ok  \texample.com/errors\t0.012s
""",
    "cargo": """\
test parse_error ... ok
test should_fail - should panic ... ok
test parse_error ... ignored
test result: ok. 4 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out
warning: unused variable: `error`
""",
    "compilers and linters": """\
Found 0 errors. Watching for file changes.
Success: no issues found in 12 source files
No errors found
x.c:3:5: warning: unused variable 'error' [-Wunused-variable]
src/x.py:3: note: error codes are explained in the manual
""",
    "ctest, googletest": """\
[       OK ] Parse.HandlesError (0 ms)
[ RUN      ] Parse.HandlesError
 1/10 Test  #1: handles_error ............   Passed    0.01 sec
""",
    "Maven, Gradle": """\
[INFO] Tests run: 3, Failures: 0, Errors: 0, Skipped: 0, Time elapsed: 0.1 s - in ErrorTest
[INFO] Running com.example.error.FailsTest
ErrorTest > handlesError() PASSED
""",
    "PHPUnit, RSpec, minitest": """\
Tests: 3, Assertions: 3, Failures: 0, Errors: 0.
0 failures
5 examples, 0 failures
3 runs, 3 assertions, 0 failures, 0 errors, 0 skips
""",
    "dotnet, deno, bun, XCTest": """\
Passed!  - Failed:     0, Passed:     4, Skipped:     0, Total:     4
  Passed Foo.HandlesError [3 ms]
    0 Error(s)
handles error ... ok (1ms)
(pass) handles errors
Test Case 'ErrorTests.testError' passed (0.001 seconds).
""",
    "others": """\

all 14 checks passed
3 × 4 is 12
""",
}


def wrong(lines: str, sign: FailureSign) -> list[str]:
    return [line for line in lines.splitlines() if failure_sign(line) is not sign]


@pytest.mark.parametrize("tool", REPORTS)
def test_reports_of_a_failure(tool: str) -> None:
    """Each line with which a tool reports a failure is recognised."""
    assert wrong(REPORTS[tool], FailureSign.REPORT) == []


def test_words_for_a_failure() -> None:
    """Other lines that suggest a failure rank below the report of a known tool."""
    assert wrong(WORDS, FailureSign.WORD) == []


@pytest.mark.parametrize("tool", HARMLESS)
def test_lines_that_only_sound_like_a_failure(tool: str) -> None:
    """A passing test that is named after an error, a total of 0 and a warning name no failure."""
    assert wrong(HARMLESS[tool], FailureSign.NONE) == []


@given(st.text(), st.sampled_from([line for lines in REPORTS.values() for line in lines.splitlines()]))
def test_any_line_has_a_sign(text: str, report: str) -> None:
    """Whatever a line contains, it is judged, and trailing space does not matter."""
    assert failure_sign(text) in FailureSign
    assert failure_sign(f"{report} \n") is FailureSign.REPORT
