//nolint:staticcheck // KMS v1 is deprecated, and values that it sealed are out there.
package kmstest

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/kms/apis/v1beta1"
)

func registerV1(s *grpc.Server, p *Plugin) {
	v1beta1.RegisterKeyManagementServiceServer(s, serverV1{p: p})
}

type serverV1 struct {
	v1beta1.UnimplementedKeyManagementServiceServer
	p *Plugin
}

func (s serverV1) Version(context.Context, *v1beta1.VersionRequest) (*v1beta1.VersionResponse, error) {
	return &v1beta1.VersionResponse{Version: "v1beta1", RuntimeName: "kmstest", RuntimeVersion: "1"}, nil
}

func (s serverV1) Encrypt(_ context.Context, r *v1beta1.EncryptRequest) (*v1beta1.EncryptResponse, error) {
	return &v1beta1.EncryptResponse{Cipher: s.p.seal(r.Plain)}, nil
}

func (s serverV1) Decrypt(_ context.Context, r *v1beta1.DecryptRequest) (*v1beta1.DecryptResponse, error) {
	if r.Version != "v1beta1" {
		return nil, status.Errorf(codes.InvalidArgument, "version %q", r.Version)
	}
	plain, err := s.p.open(r.Cipher)
	return &v1beta1.DecryptResponse{Plain: plain}, err
}
