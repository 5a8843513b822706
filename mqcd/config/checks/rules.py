"""What reply rules must and must not say. Pure."""

from mqcd.config.checks.faults import Remarks, numbered
from mqcd.config.settings import ReplyAction, Settings

_LASTING = (ReplyAction.SUSPEND, ReplyAction.SLOW)


def reply_rules(settings: Settings) -> Remarks:
    """An effect that lasts needs a time, and limits are for slow alone."""
    for path, rule in numbered("mta/deliver/rules/rule", settings.deliver.rules):
        action = rule.action.value
        if rule.action in _LASTING and rule.span is None:
            yield path, f"{action} needs for=, how long it lasts"
        if rule.action not in _LASTING and rule.span is not None:
            yield f"{path}@for", f"{action} has no duration: it concerns the recipient that got the reply"
        limits = {"rate": rule.rate, "maxserverconnections": rule.maxserverconnections}
        for name, value in limits.items():
            if value is not None and rule.action is not ReplyAction.SLOW:
                yield f"{path}@{name}", f"{action} has no limits: it is for slow"
