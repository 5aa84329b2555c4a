"""Phrases that tell a model to drop its instructions, as regular expressions over plain text: lower case, no accents,
single spaces.
"""

from __future__ import annotations

import re

_DROP = r"(?:ignore|disregard|forget|override|bypass|neglect|discard)"
_SHOW = r"(?:reveal|print|show|repeat|output|display|leak|tell)"
_EARLIER = r"(?:previous|prior|earlier|above|preceding|former|initial|original|system)"
_RULES = r"(?:instructions?|prompts?|rules?|directions?|guidelines?|commands?|directives?|programming)"

PATTERNS = tuple(
    re.compile(pattern, re.VERBOSE)
    for pattern in (
        # Drop the instructions that you have.
        rf"\b{_DROP}\ (?:\w+\ ){{0,5}}?{_EARLIER}\ (?:\w+\ )?{_RULES}\b",
        r"\b(?:ignore|disregard|forget)\ (?:everything|all|anything)\ (?:\w+\ ){0,3}(?:above|before|said|told)\b",
        rf"\b{_DROP}\ (?:all|any|every|your)\ (?:of\ )?(?:your\ |the\ )?{_RULES}\b",
        r"\bvergiss\ (?:\w+\ ){1,4}(?:anweisungen|regeln|vorgaben)\b",
        r"\bignoriere?\ (?:\w+\ ){0,3}(?:vorherigen|bisherigen|obigen)\ (?:anweisungen|regeln|vorgaben)\b",
        r"\bignore[zs]?\ (?:\w+\ ){0,3}(?:instructions|consignes|regles)\ (?:precedentes|anterieures|ci-dessus)\b",
        r"\bignora\ (?:\w+\ ){0,3}(?:instrucciones|reglas)\ (?:anteriores|previas)\b",
        # Show them.
        rf"\b{_SHOW}\ (?:\w+\ ){{0,3}}?(?:your|the)\ (?:hidden\ |full\ |exact\ |secret\ )*system\ (?:prompt|message)\b",
        # Be a model without any.
        r"\byou\ are\ (?:now\ )?(?:dan|an?\ (?:unrestricted|unfiltered|uncensored|jailbroken))\b",
        r"\b(?:do\ anything\ now|developer\ mode\ (?:is\ )?(?:on|enabled)|jailbreak\ mode)\b",
        r"""\b(?:act|respond|answer|behave|pretend)\ (?:\w+\ ){0,4}(?:without|with\ no|free\ of)\ (?:any\ |all\ )?
            (?:restrictions|filters|rules|guidelines|censorship)\b""",
        # The marks between the messages of a prompt.
        r"<\|(?:im_start|im_end|system|start_header_id|eot_id)\|>|\[/?inst\]|<<sys>>",
    )
)
