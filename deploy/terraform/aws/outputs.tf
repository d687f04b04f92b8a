output "role_arn" {
  description = "Role of the controller; roles in other accounts trust it."
  value       = aws_iam_role.controller.arn
}

output "instance_profile" {
  description = "Instance profile with that role, for an instance of your own."
  value       = aws_iam_instance_profile.controller.name
}

output "policy_arns" {
  description = "Policies by name: observe, reclaim, scale, shield, assume, secrets, scan, quotas, keys."
  value       = { for name, policy in aws_iam_policy.controller : name => policy.arn }
}

output "instance_id" {
  description = "The controller's instance: aws ssm start-session --target ID. Null if there is none."
  value       = one(aws_instance.controller[*].id)
}

output "security_group_id" {
  description = "Security group of the instance. Let it reach port 9460 of the agents. Null if there is none."
  value       = one(aws_security_group.controller[*].id)
}
