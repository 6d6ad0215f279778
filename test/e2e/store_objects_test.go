//go:build e2e || soak

package e2e

import (
	"bytes"
	"context"
	"errors"
	"io"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"k8s.io/utils/ptr"
)

// listKeys are those of the objects whose keys begin so, in order.
func (s *store) listKeys(prefix string) []string {
	s.t.Helper()
	var keys []string
	pages := s3.NewListObjectsV2Paginator(s.s3, &s3.ListObjectsV2Input{Bucket: ptr.To(bucket), Prefix: &prefix})
	for pages.HasMorePages() {
		page, err := pages.NextPage(s.t.Context())
		must(s.t, err, "list the store's "+prefix)
		for _, o := range page.Contents {
			keys = append(keys, *o.Key)
		}
	}
	return keys
}

func (s *store) getObject(key string) []byte {
	s.t.Helper()
	object, err := s.s3.GetObject(s.t.Context(), &s3.GetObjectInput{Bucket: ptr.To(bucket), Key: &key})
	must(s.t, err, "get the store's "+key)
	content, err := io.ReadAll(object.Body)
	must(s.t, errors.Join(err, object.Body.Close()), "get the store's "+key)
	return content
}

func (s *store) putObject(key string, content []byte) {
	s.t.Helper()
	must(s.t, putObject(s.t.Context(), s.s3, bucket, key, content), "put the store's "+key)
}

func putObject(ctx context.Context, as *s3.Client, bucket, key string, content []byte) error {
	_, err := as.PutObject(ctx, &s3.PutObjectInput{Bucket: &bucket, Key: &key, Body: bytes.NewReader(content)})
	return err
}

// corruptObject changes one byte in the middle of an object, as another client who
// may write does: the store vouches for what it has now.
func (s *store) corruptObject(key string) {
	s.t.Helper()
	content := s.getObject(key)
	content[len(content)/2] ^= 1
	s.putObject(key, content)
}

// truncateObject leaves half of an object.
func (s *store) truncateObject(key string) {
	s.t.Helper()
	content := s.getObject(key)
	s.putObject(key, content[:len(content)/2])
}
