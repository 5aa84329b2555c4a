"""The function by which torch calls a kernel, in LLVM's language.

torch's stable ABI (torch/csrc/stable/library.h) calls it with the address of the arguments. The function puts the
address of each tensor's data in its place, has the rows computed by torch's threads, and drops the tensors, which it
owns.
"""

from __future__ import annotations

from models.kernels.schemas import Kernel, NumberForm

DECLARATIONS = """
declare i32 @aoti_torch_get_data_ptr(i64, ptr)
declare i32 @aoti_torch_delete_tensor_object(i64)
declare i32 @torch_parallel_for(i64, i64, i64, ptr, ptr)
"""


def forms_of(kernel: Kernel) -> list[NumberForm]:
    """Those of its workers: without a cache, all rows of float32 have the same one."""
    return [form for form in NumberForm if kernel.has_cache or form is not NumberForm.NARROW_CACHE]


def worker_name(kernel: Kernel, form: NumberForm) -> str:
    return f"parley_{kernel.name}_{form.name.lower()}"


def called(name: str, native: str) -> str:
    """The worker `name`, which calls Numba's `native`: that takes where to put its result and its exception, has
    neither, and returns a status.
    """
    return f"""
        declare i32 @{native}(ptr, ptr, i64, i64, i64)
        define internal void @{name}(i64 %begin, i64 %end, i64 %stack) {{
            %result = alloca ptr
            %raised = alloca ptr
            %status = call i32 @{native}(ptr %result, ptr %raised, i64 %begin, i64 %end, i64 %stack)
            ret void
        }}"""


def boxed(kernel: Kernel) -> str:
    rows = len(kernel.tensors)
    forms = forms_of(kernel)
    names = {form: worker_name(kernel, form if form in forms else NumberForm.FLOAT32) for form in NumberForm}
    lines = [
        f"define void @{kernel.symbol}(ptr %stack, i64 %arguments, i64 %results) {{",
    ]
    for number in range(rows):
        lines += [
            f"%at{number} = getelementptr i64, ptr %stack, i64 {number}",
            f"%held{number} = load i64, ptr %at{number}",
            f"%got{number} = call i32 @aoti_torch_get_data_ptr(i64 %held{number}, ptr %at{number})",
        ]
    for name, number in (("rows", rows), ("grain", rows + 1), ("form", rows + 2)):
        lines += [f"%{name}.at = getelementptr i64, ptr %stack, i64 {number}", f"%{name} = load i64, ptr %{name}.at"]
    lines += [
        f"%is.half = icmp eq i64 %form, {NumberForm.BFLOAT16}",
        f"%is.narrow = icmp eq i64 %form, {NumberForm.NARROW_CACHE}",
        f"%wide = select i1 %is.narrow, ptr @{names[NumberForm.NARROW_CACHE]}, ptr @{names[NumberForm.FLOAT32]}",
        f"%worker = select i1 %is.half, ptr @{names[NumberForm.BFLOAT16]}, ptr %wide",
        "%done = call i32 @torch_parallel_for(i64 0, i64 %rows, i64 %grain, ptr %worker, ptr %stack)",
    ]
    lines += [
        f"%dropped{number} = call i32 @aoti_torch_delete_tensor_object(i64 %held{number})" for number in range(rows)
    ]
    return "\n".join([*lines, "ret void", "}"])
