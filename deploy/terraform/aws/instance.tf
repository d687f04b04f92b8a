locals {
  configuration = coalesce(var.configuration, yamlencode({
    mode  = "observe"
    fleet = var.fleet
    cloud = { provider = "aws", regions = var.regions }
  }))

  user_data = templatefile("${path.module}/user_data.sh.tftpl", {
    configuration = base64encode(local.configuration)
    packages      = var.package_urls
  })
}

data "aws_subnet" "controller" {
  count = var.create_instance ? 1 : 0

  id = var.subnet_id

  lifecycle {
    precondition {
      condition     = var.ami != null && var.subnet_id != null
      error_message = "An instance needs ami and subnet_id; or set create_instance = false."
    }
  }
}

# Nothing may come in: Session Manager, the agents and the AWS API are all asked from inside.
resource "aws_security_group" "controller" {
  count = var.create_instance ? 1 : 0

  name_prefix = "${var.name}-"
  description = "gpuwatch controller: no way in"
  vpc_id      = data.aws_subnet.controller[0].vpc_id
  tags        = var.tags

  lifecycle {
    create_before_destroy = true
  }
}

resource "aws_vpc_security_group_egress_rule" "controller" {
  count = var.create_instance ? 1 : 0

  security_group_id = aws_security_group.controller[0].id
  description       = "AWS API, agents, notifications"
  ip_protocol       = "-1"
  cidr_ipv4         = "0.0.0.0/0"
  tags              = var.tags
}

resource "aws_instance" "controller" {
  count = var.create_instance ? 1 : 0

  ami                         = var.ami
  instance_type               = var.instance_type
  subnet_id                   = var.subnet_id
  iam_instance_profile        = aws_iam_instance_profile.controller.name
  vpc_security_group_ids      = [aws_security_group.controller[0].id]
  associate_public_ip_address = false
  ebs_optimized               = true
  user_data                   = local.user_data
  tags                        = merge(var.tags, { Name = var.name })
  volume_tags                 = var.tags

  metadata_options {
    http_endpoint               = "enabled"
    http_tokens                 = "required"
    http_put_response_hop_limit = 1
  }

  root_block_device {
    encrypted   = true
    kms_key_id  = var.kms_key_arn
    volume_type = "gp3"
    volume_size = var.disk_gib
  }

  lifecycle {
    # The disk holds the ledger: a newer image or configuration must not replace the instance unasked.
    ignore_changes = [ami, user_data]

    precondition {
      condition     = length(var.package_urls) == 2
      error_message = "package_urls needs the addresses of gpuwatch_*.deb and gpuwatch-controller_*.deb."
    }

    precondition {
      condition     = var.configuration != null || length(var.regions) > 0
      error_message = "Set regions, or a whole configuration."
    }
  }

  # Without its permissions the first rounds fail.
  depends_on = [aws_iam_role_policy_attachment.controller]
}
