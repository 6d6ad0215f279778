package image

import "runtime"

// architecture is that of this machine: what is packed runs on its nodes.
const architecture = runtime.GOARCH
