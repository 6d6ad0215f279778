package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"io"
	"path/filepath"
	"time"
)

// archived is a file in an archive.
type archived struct {
	name       string
	content    []byte
	executable bool
}

// writeArchive writes a .zip or a .tar.gz of files, in their order. Their time is
// the commit's, and they have no owner.
func (r *release) writeArchive(name string, files []archived) error {
	write := writeTarball
	if filepath.Ext(name) == ".zip" {
		write = writeZip
	}
	var out bytes.Buffer
	if err := write(&out, files, r.source.time); err != nil {
		return err
	}
	return r.writeText(name, out.Bytes())
}

func writeTarball(out io.Writer, files []archived, modified time.Time) error {
	// The header of gzip stays empty: it would have a name and a time.
	compressed, err := gzip.NewWriterLevel(out, gzip.BestCompression)
	if err != nil {
		return err
	}
	w := tar.NewWriter(compressed)
	for _, file := range files {
		header := &tar.Header{Name: file.name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(file.content)), ModTime: modified}
		if file.executable {
			header.Mode = 0o755
		}
		if err := w.WriteHeader(header); err != nil {
			return err
		}
		if _, err := w.Write(file.content); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	return compressed.Close()
}

func writeZip(out io.Writer, files []archived, modified time.Time) error {
	w := zip.NewWriter(out)
	for _, file := range files {
		header := &zip.FileHeader{Name: file.name, Method: zip.Deflate, Modified: modified}
		header.SetMode(0o644)
		if file.executable {
			header.SetMode(0o755)
		}
		entry, err := w.CreateHeader(header)
		if err != nil {
			return err
		}
		if _, err := entry.Write(file.content); err != nil {
			return err
		}
	}
	return w.Close()
}
