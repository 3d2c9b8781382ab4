#: exec_of_exec -> exception:RecursionError stack
code = "exec(code)"
exec(code)

#: eval_of_nested -> exception stack ok
eval("(" * 10**5 + "1" + ")" * 10**5)

#: eval_of_a_long_sum -> exception ok stack timeout
eval("+".join(["1"] * 10**5))

#: exec_of_megabytes -> ok exception timeout memory stack
exec("x = 1\n" * 10**6)

#: compile_in_a_loop -> timeout memory
while True:
    compile("x = " + str([0] * 1000), "a", "exec")

#: ast_by_hand -> exception ok stack
import ast
tree = ast.Constant(1)
for _ in range(10**5):
    tree = ast.UnaryOp(ast.USub(), tree)
eval(compile(ast.fix_missing_locations(ast.Expression(tree)), "a", "eval"))

#: ast_that_is_wrong -> exception
import ast
exec(compile(ast.Module([ast.Expr(7), None], []), "a", "exec"))

#: ast_of_a_cycle -> exception stack
import ast
tree = ast.UnaryOp(ast.USub(), None)
tree.operand = tree
ast.dump(tree)

#: ast_of_a_cycle_compiled -> exception stack
import ast
tree = ast.UnaryOp(ast.USub(), None, lineno=1, col_offset=0)
tree.operand = tree
compile(ast.Expression(tree), "a", "eval")

#: ast_with_negative_lines -> exception ok
import ast
tree = ast.parse("1 / 0")
for node in ast.walk(tree):
    node.lineno = node.end_lineno = -(10**9)
    node.col_offset = node.end_col_offset = 10**9
exec(compile(tree, "a", "exec"))

#: ast_with_an_odd_name -> exception ok crash
import ast
tree = ast.parse("x = 1")
tree.body[0].targets[0].id = "a b\n\ud800"
exec(compile(ast.fix_missing_locations(tree), "a", "exec"))

#: literal_eval_of_nested -> exception ok stack
import ast
ast.literal_eval("[" * 10**5 + "]" * 10**5)

#: unparse_of_nested -> exception ok stack
import ast
ast.unparse(ast.parse("-" * 900 + "1"))

#: many_nested_functions -> exception ok stack
source = ""
for depth in range(90):
    source += " " * depth + "def f():\n"
exec(source + " " * 90 + "pass")

#: many_locals -> ok exception timeout
exec("def f():\n" + "".join(f" x{n} = {n}\n" for n in range(50000)) + "f()")

#: many_constants -> ok exception timeout
exec("x = [" + ",".join(map(str, range(100000))) + "]")

#: many_jumps -> ok exception timeout memory
exec("for i in range(2):\n" + " if i: pass\n" * 50000)

#: compile_from_odd_types -> exception
compile(7, 8, 9)

#: eval_with_an_odd_namespace -> exception ok
class D(dict):
    def __getitem__(self, name):
        return eval(name, {}, self)
eval("x", {}, D())

#: globals_replaced_by_keys -> ok exception
globals().update({n: n for n in range(100)})

#: codeop -> exception ok timeout
import code
code.interact()

#: disassembly -> ok exception output timeout stack
import dis
dis.dis("x = 1\n" * 1000)
