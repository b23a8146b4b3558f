"""IMAGE rows with their pictures -> networks, and from them PREDICTION, EMBEDDING and GENERATION rows.

In the order of the work: images, tasks, pictures, augment, loader; backbone, weights, saved; loss, optimize,
checkpoint, history, resume, loop, train; forward, rows, calibration, probe; clip, prompts, zero_shot; vlm, finetune,
generate. Torch and its libraries stay in this package and in cxrhf.encode.
"""

import os

# Before torch is loaded: its threads wait for each other asleep, not spinning. Beside another program on the same cores
# spinning threads take each other's time: a step of a small network took 3 s instead of .25 s. Alone it costs nothing
# that could be measured. Whoever sets the variable decides.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
# Some virtual machines name AMX among the processor's abilities and then kill whoever uses it ("illegal instruction").
# Without it only bfloat16 on a processor is slower, which nobody gets unasked. Whoever sets the variable decides.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
