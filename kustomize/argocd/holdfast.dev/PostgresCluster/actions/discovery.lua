local suspended = obj.spec ~= nil and obj.spec.suspend == true
local deleting = obj.metadata.deletionTimestamp ~= nil

return {
  suspend = {
    displayName = "Suspend",
    iconClass = "fa fa-fw fa-pause",
    disabled = suspended or deleting,
  },
  resume = {
    displayName = "Resume",
    iconClass = "fa fa-fw fa-play",
    disabled = not suspended or deleting,
  },
  reconcile = {
    displayName = "Reconcile now",
    iconClass = "fa fa-fw fa-sync",
    disabled = deleting,
  },
}
