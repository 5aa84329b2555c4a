"""Seeds of storms that found something once: they stay in the suite (test_seeds.py)."""

FOUND = {
    "storm": (7, 14, 17, 23, 52, 82, 89, 106, 137, 160, 176, 206, 223, 250, 251, 302, 314, 332, 922, 940, 1306),
    "wide_storm": (49, 75, 77, 134, 142, 214, 532, 2065, 3454, 4289, 4302, 4395, 5717, 12909),
    "tool_storm": (223, 309, 551, 656, 1351, 9100234, 1983515533),
    "routed_storm": (207, 242, 481, 595, 612, 634, 679, 852),
    "foreign_storm": (252, 264, 454),
    "mixed_storm": (300204, 261128039),
    "erasing_storm": (1793612427,),
    "deleting_storm": (251, 253, 407, 525, 597, 713, 739, 755, 1035, 1055),
    "recalling_deletions": (556, 598),
    "hostile_storm": (350, 261128006, 261128091),
    "killed_while_failing": (812633, 812746),
    "reasoning_storm": (419000003, 419000012, 419000015),
    "agent_storm": (277, 297),
    "sleeping_storm": (310775, 312249),
    "busy_storm": (4189626237,),
    "steering_storm": (269, 348597112),
    "timer_storm": (412, 534, 547, 658, 7438, 784562),
    "returning_storm": (120, 136, 141, 205, 261128029, 261128039, 261128072),
}
