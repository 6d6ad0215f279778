package restore

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
)

// UnpackTar unpacks a tar of a data directory as Recovered below dir. It writes nothing
// outside of that, whatever the tar says. Refusal says what is not restored, where an
// entry is neither a file nor a directory.
func UnpackTar(ctx context.Context, from io.Reader, dir, refusal string) error {
	data := filepath.Join(dir, Recovered)
	if err := os.Mkdir(data, 0o700); err != nil {
		return err
	}
	root, err := os.OpenRoot(data)
	if err != nil {
		return err
	}
	defer root.Close() //nolint:errcheck // nothing is written through it
	for archive := tar.NewReader(from); ctx.Err() == nil; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = unpackEntry(root, header, archive, refusal)
		}
		if err != nil {
			name := ""
			if header != nil {
				name = " " + header.Name
			}
			return fmt.Errorf("unpack%s: %w", name, err)
		}
	}
	return ctx.Err()
}

func unpackEntry(root *os.Root, header *tar.Header, from io.Reader, refusal string) error {
	name := path.Clean(header.Name)
	switch header.Typeflag {
	case tar.TypeDir:
		return root.MkdirAll(name, 0o700)
	case tar.TypeReg:
	default:
		return newPermanent("it is neither a file nor a directory: %s", refusal)
	}
	if err := root.MkdirAll(path.Dir(name), 0o700); err != nil {
		return err
	}
	file, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, from)
	return errors.Join(err, file.Close())
}
