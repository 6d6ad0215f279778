//go:build release

package main

// Platforms of the tests: all.
var testedPlatforms, testedPlugins = imagePlatforms, pluginPlatforms
