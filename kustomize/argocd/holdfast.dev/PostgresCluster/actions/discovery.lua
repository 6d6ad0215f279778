local suspended = obj.spec ~= nil and obj.spec.suspend == true
local deleting = obj.metadata.deletionTimestamp ~= nil
local leads = obj.status ~= nil and obj.status.primary ~= nil and obj.status.primary ~= ""
local alone = obj.spec == nil or obj.spec.replicas == nil or obj.spec.replicas < 2

local actions = {
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

-- Members of an EtcdCluster elect their leader among themselves, whatever it is
-- annotated with.
if obj.kind ~= "EtcdCluster" then
  actions.switchover = {
    displayName = "Switch over to another primary",
    iconClass = "fa fa-fw fa-exchange-alt",
    disabled = suspended or deleting or alone or not leads,
  }
end

return actions
