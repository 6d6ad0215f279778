//go:build !linux

package store

import "os"

func forget(*os.File) error { return nil }
