"""Tags without JSON: Qwen3-Coder, Qwen 3.5 and 3.6, Nemotron 3.

<tool_call>
<function=f>
<parameter=key>
value
</parameter>
</function>
</tool_call>
"""

from models.tools.format import ArgumentStyle, NameStyle, ToolFormat

FORMS = (
    ToolFormat(
        name="qwen_coder",
        trigger="<tool_call>",
        opening="\n<function=",
        middle=">\n",
        closing="</function>\n</tool_call>",
        separator="\n<tool_call>\n<function=",
        leads=True,
        names=NameStyle.BARE,
        arguments=ArgumentStyle.TAGGED,
        key="<parameter=",
        value=">\n",
        value_end="\n</parameter>\n",
    ),
)
