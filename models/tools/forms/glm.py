"""Tags without JSON: GLM, from 4.7 on without the line breaks.

<tool_call>f
<arg_key>key</arg_key>
<arg_value>value</arg_value>
</tool_call>
"""

import dataclasses

from models.tools.format import ArgumentStyle, NameStyle, ToolFormat

_GLM_45 = ToolFormat(
    name="glm45",
    trigger="<tool_call>",
    opening="",
    middle="\n",
    closing="</tool_call>",
    separator="\n<tool_call>",
    leads=True,
    names=NameStyle.BARE,
    arguments=ArgumentStyle.TAGGED,
    key="<arg_key>",
    value="</arg_key>\n<arg_value>",
    value_end="</arg_value>\n",
)
_GLM_47 = dataclasses.replace(
    _GLM_45,
    name="glm47",
    middle="",
    separator="<tool_call>",
    value="</arg_key><arg_value>",
    value_end="</arg_value>",
)

FORMS = (_GLM_45, _GLM_47)
