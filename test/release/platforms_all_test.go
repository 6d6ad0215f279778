//go:build release

package main

// sourceRequired says that a tree that is no Git clone is a failure: nothing would be tested.
const sourceRequired = true

// Platforms of the tests: all.
var testedPlatforms, testedPlugins = imagePlatforms, pluginPlatforms
