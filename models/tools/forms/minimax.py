"""Tags without JSON, with names in quotes: MiniMax M2.

<minimax:tool_call>
<invoke name="f">
<parameter name="key">value</parameter>
</invoke>
</minimax:tool_call>
"""

from models.tools.format import ArgumentStyle, NameStyle, ToolFormat

CALLS_BEGIN = "<minimax:tool_call>"

FORMS = (
    ToolFormat(
        name="minimax",
        trigger=CALLS_BEGIN,
        opening='\n<invoke name="',
        middle='">\n',
        closing="</invoke>\n",
        separator='<invoke name="',
        end="</minimax:tool_call>",
        leads=True,
        names=NameStyle.BARE,
        arguments=ArgumentStyle.TAGGED,
        key='<parameter name="',
        value='">',
        value_end="</parameter>\n",
    ),
)
