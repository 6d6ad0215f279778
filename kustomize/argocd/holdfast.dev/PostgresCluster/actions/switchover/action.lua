local os = require("os")
if obj.metadata.annotations == nil then
  obj.metadata.annotations = {}
end
obj.metadata.annotations["holdfast.dev/switchover"] = "argocd-" .. os.date("!%Y-%m-%dT%X")
return obj
