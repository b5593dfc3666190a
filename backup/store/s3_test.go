package store_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/etcdctl-plus/etcdctl-plus/backup/store"
	"github.com/etcdctl-plus/etcdctl-plus/backup/store/storetest"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/sourcetest/server"
)

// part is the smallest part that S3 takes.
const part = 5 << 20

var buckets atomic.Int64

// newBucket makes a bucket of its own and returns its name.
func newBucket(t *testing.T, srv *server.S3) string {
	t.Helper()
	name := fmt.Sprintf("bucket-%d", buckets.Add(1))
	srv.Bucket(t, name)
	return name
}

// environ is an environment that holds these variables alone.
func environ(kv ...string) func(string) string {
	m := map[string]string{"AWS_EC2_METADATA_DISABLED": "true", "HOME": "/nonexistent"}
	for i := 0; i < len(kv); i += 2 {
		m[kv[i]] = kv[i+1]
	}
	return func(name string) string { return m[name] }
}

func keysOf(srv *server.S3) func(string) string {
	return environ("AWS_ACCESS_KEY_ID", srv.AccessKey, "AWS_SECRET_ACCESS_KEY", srv.Secret)
}

// uploads lists the uploads of a bucket that were not finished.
func uploads(srv *server.S3, bucket string) func(context.Context) ([]string, error) {
	c := s3.New(s3.Options{Region: "us-east-1", BaseEndpoint: &srv.URL, UsePathStyle: true, Credentials: credentials.NewStaticCredentialsProvider(srv.AccessKey, srv.Secret, "")})
	return func(ctx context.Context) (left []string, err error) {
		out, err := c.ListMultipartUploads(ctx, &s3.ListMultipartUploadsInput{Bucket: &bucket})
		if err != nil {
			return nil, err
		}
		for _, u := range out.Uploads {
			left = append(left, aws.ToString(u.Key))
		}
		return left, nil
	}
}

func TestS3(t *testing.T) {
	t.Parallel()
	srv := server.StartS3(t)
	storetest.Run(t, func(t *testing.T) storetest.Place {
		bucket := newBucket(t, srv)
		return storetest.Place{
			Open: func() (store.Store, error) {
				return store.Open("s3://"+bucket+"/etcd/prod", store.Options{Endpoint: srv.URL, PartBytes: part, Getenv: keysOf(srv)})
			},
			Left: uploads(srv, bucket), Part: part,
		}
	})
}
