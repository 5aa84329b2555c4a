"""Tags that say of each value whether it is a string: DeepSeek V3.2.

<｜DSML｜function_calls>
<｜DSML｜invoke name="f">
<｜DSML｜parameter name="key" string="true">value</｜DSML｜parameter>
<｜DSML｜parameter name="other" string="false">[1, 2]</｜DSML｜parameter>
</｜DSML｜invoke>
</｜DSML｜function_calls>
"""

from models.tools.format import ArgumentStyle, NameStyle, ToolFormat

CALLS_BEGIN = "<｜DSML｜function_calls>"

FORMS = (
    ToolFormat(
        name="dsml",
        trigger=CALLS_BEGIN,
        opening='\n<｜DSML｜invoke name="',
        middle='">\n',
        closing="</｜DSML｜invoke>\n",
        separator='<｜DSML｜invoke name="',
        end="</｜DSML｜function_calls>",
        leads=True,
        names=NameStyle.BARE,
        arguments=ArgumentStyle.TAGGED,
        key='<｜DSML｜parameter name="',
        value='" string="true">',
        other_value='" string="false">',
        value_end="</｜DSML｜parameter>\n",
    ),
)
