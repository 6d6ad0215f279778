//go:build !release

package main

import "runtime"

// sourceRequired says that a tree that is no Git clone is a failure.
const sourceRequired = false

// compiledTwice says that the second run compiles anew. That takes minutes.
const compiledTwice = false

// Platforms of the tests: this machine's alone, whose programs are built anyway.
// The build tag release tests all of them.
var (
	testedPlatforms = []platform{{"linux", runtime.GOARCH}}
	testedPlugins   = testedPlatforms
)
