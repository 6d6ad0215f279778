//go:build !linux

package store

import "os"

func dropCache(*os.File) error { return nil }
