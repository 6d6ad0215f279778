// Package site tests the site of the documentation in Chromium: make site-test.
package site
