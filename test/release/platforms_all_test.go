//go:build release

package main

// sourceRequired says that a tree that is no Git clone is a failure: nothing would be tested.
const sourceRequired = true

// compiledTwice says that the second run compiles anew: it has a cache of its own. Otherwise it
// would get what the first one compiled, and prove only that programs are linked in the same way.
const compiledTwice = true

// Platforms of the tests: all.
var testedPlatforms, testedPlugins = imagePlatforms, pluginPlatforms
