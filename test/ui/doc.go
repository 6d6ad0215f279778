// Package ui tests the pages of kubectl holdfast ui in Chromium, on golden data that a
// stand-in for the API server has. make ui-test runs it.
package ui
