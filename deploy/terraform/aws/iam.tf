data "aws_partition" "current" {}

locals {
  policies = coalesce(var.policies, "${path.module}/../../../iam")

  # The policies are written for the fleet "default" in the partition aws: both are put in here, and nothing else.
  documents = {
    for role in setunion([var.permissions], var.more_permissions) : role => replace(
      replace(
        file("${local.policies}/${role}.json"),
        "/(gpuwatch:fleet\": )\"default\"/", "$1\"${var.fleet}\""
      ),
      "arn:aws:", "arn:${data.aws_partition.current.partition}:"
    )
  }
}

resource "aws_iam_role" "controller" {
  name                 = var.name
  description          = "gpuwatch controller of the fleet ${var.fleet}"
  permissions_boundary = var.permissions_boundary
  tags                 = var.tags

  assume_role_policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect    = "Allow"
      Action    = "sts:AssumeRole"
      Principal = { Service = "ec2.amazonaws.com" }
    }]
  })
}

resource "aws_iam_policy" "controller" {
  for_each = local.documents

  name        = "${var.name}-${each.key}"
  description = "gpuwatch, fleet ${var.fleet}: ${each.key}"
  policy      = each.value
  tags        = var.tags
}

resource "aws_iam_role_policy_attachment" "controller" {
  for_each = aws_iam_policy.controller

  role       = aws_iam_role.controller.name
  policy_arn = each.value.arn
}

resource "aws_iam_role_policy_attachment" "session_manager" {
  count = var.session_manager && var.create_instance ? 1 : 0

  role       = aws_iam_role.controller.name
  policy_arn = "arn:${data.aws_partition.current.partition}:iam::aws:policy/AmazonSSMManagedInstanceCore"
}

resource "aws_iam_instance_profile" "controller" {
  name = var.name
  role = aws_iam_role.controller.name
  tags = var.tags
}
